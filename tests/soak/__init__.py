"""A long run of real flights under `hifi up`'s own console: does memory stay, does observe say what the books say?"""
