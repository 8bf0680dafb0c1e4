"""A pipe and a view of it, as their files declare them."""

PIPE = """\
pipe: flights
source: {keys: [{env: KEY}], formats: [json], partition_key: flight}
destinations: [{name: d, url: "http://127.0.0.1:9/d"}]
"""
VIEW = """\
view: flights-now
from: {pipe: flights}
key: [flight]
fields: {carrier: text}
serve: {keys: [{env: VIEW_KEY}]}
"""
