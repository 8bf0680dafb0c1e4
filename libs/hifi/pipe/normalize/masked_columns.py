"""The copies of the value of a masked column in an event: `change` has the row before, and the key. Pure."""

from collections.abc import Callable, Mapping
from typing import Final

from hifi.pipe.mask import MASK_UNAVAILABLE, KeyedHash, Mask
from hifi.pipe.model import Pipe
from hifi.pipe.normalize.lazy_json import encode, open_object
from hifi.pipe.normalize.left_out import is_of_changes
from hifi.pipe.normalize.masking import Masker
from hifi.pipe.sent_paths import mapped_paths, sent_paths
from hifi.runtime.errors import Rejected

_COPIES: Final = ("change.before", "change.key")
"""Objects in an event of a change that have columns, too."""
_HASH_IT: Final = (
    "`normalize.mask` drops or redacts a column of the primary key, which the record key has, too, to keep the order "
    "of each row: hash it instead. The event is in the topic raw only, at the offset hifi_raw"
)


def masked_copies(pipe: Pipe) -> Mapping[str, list[str]]:
    """Masked path to the further paths of the same column; empty: the source has no such."""
    if not is_of_changes(pipe):
        return {}
    normalize = pipe.normalize
    prefixes = [*_COPIES]
    for target, source in mapped_paths(normalize):
        prefixes += [target + copy[len(source) :] for copy in _COPIES if f"{copy}.".startswith(f"{source}.")]
    return {
        path: [f"{prefix}.{sent_path}" for prefix in prefixes for sent_path in sent_paths(normalize, path)]
        for path in normalize.mask
    }


def record_key_masker(pipe: Pipe) -> Callable[[bytes | None], bytes | None] | None:
    """A function that masks the columns in the record key of a change; None: there is nothing to mask.

    It raises Rejected (`mask-unavailable`) where a column of the key has a mask that is no hash: then rows would have
    no keys to tell them apart.

    Raises:
        MaskUnavailable: the key of a hash cannot be read.
    """
    normalize = pipe.normalize
    if not is_of_changes(pipe) or not normalize.mask:
        return None
    masks: dict[str, Mask] = {
        sent_path: mask for path, mask in normalize.mask.items() for sent_path in sent_paths(normalize, path)
    }
    hash_masker = Masker({path: mask for path, mask in masks.items() if isinstance(mask, KeyedHash)})
    unhashed_masker = Masker({path: mask for path, mask in masks.items() if not isinstance(mask, KeyedHash)})

    def mask_key(key: bytes | None) -> bytes | None:
        if not key or key[:1] != b"{":  # a table without a primary key: its name, or the id of the event
            return key
        try:
            columns = open_object(key)
        except Rejected:
            return key
        if unhashed_masker.apply(columns):
            raise Rejected(MASK_UNAVAILABLE, _HASH_IT, "/change/key")
        return encode(columns) if hash_masker.apply(columns) else key

    return mask_key
