"""Two colours of one stream on this machine, and the front that divides requests between them."""
