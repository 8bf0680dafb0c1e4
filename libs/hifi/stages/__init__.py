"""How late normalize, enrich and egest are, by the offsets that they have committed."""
