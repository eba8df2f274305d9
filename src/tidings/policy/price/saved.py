"""What `price` knows beyond single feeds, as bytes: the controller, the shapes that feeds share, the prior.

Plain arrays in numpy's own format, never pickles: what is loaded can be wrong, but it cannot run.
"""

import io
import zipfile
from dataclasses import fields

import numpy as np

from tidings.errors import UsageError
from tidings.model import Floats
from tidings.policy.price.control import Controller
from tidings.policy.price.shape import Shapes

Shared = tuple[Controller, Shapes, tuple[Floats, Floats], int]


def save_shared(control: Controller, shapes: Shapes, prior: tuple[Floats, Floats], feeds: int) -> bytes:
    """Everything as one block of bytes."""
    arrays = {f"control_{each.name}": np.asarray(getattr(control, each.name)) for each in fields(control)}
    arrays |= {f"preferred_{k}": preferred for k, preferred in enumerate(shapes.preferred)}
    arrays |= {"centres": shapes.centres, "shares": shapes.shares}
    arrays |= {"prior": np.stack(prior), "feeds": np.asarray(feeds)}
    block = io.BytesIO()
    np.savez(block, **arrays)  # type: ignore[arg-type]  # its one option is not among the names
    return block.getvalue()


def load_shared(saved: bytes) -> Shared:
    """What `save_shared` gave."""
    try:
        with np.load(io.BytesIO(saved), allow_pickle=False) as arrays:
            preferred = tuple(arrays[name] for name in sorted(arrays.files) if name.startswith("preferred_"))
            shapes = Shapes(arrays["centres"], arrays["shares"], preferred)
            control = Controller(*(arrays[f"control_{each.name}"] for each in fields(Controller) if each.init))
            for each in fields(Controller):
                value = arrays[f"control_{each.name}"]
                plain = value.tolist() if value.ndim == 0 or each.name in ("polls", "looks", "foretold") else value
                setattr(control, each.name, plain)
            prior = arrays["prior"]
            return control, shapes, (prior[0], prior[1]), int(arrays["feeds"])
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise UsageError(f"price: what was saved is not of this version ({error})") from None
