"""The `normalize` section of a pipe: schema, fields, casts, masks."""
