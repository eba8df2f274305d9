"""What `price` knows beyond single feeds, as bytes: the controller, the shapes that feeds share, the prior.

Plain arrays in numpy's own format, never pickles: what is loaded can be wrong, but it cannot run.
"""

import io
import zipfile
from dataclasses import fields

import numpy as np

from tidings.errors import UsageError
from tidings.model import Floats
from tidings.policy.price.controller import PriceController
from tidings.policy.price.weekly_profile import SharedProfiles

SharedState = tuple[PriceController, SharedProfiles, tuple[Floats, Floats], int]


def save_shared_state(
    controller: PriceController, shapes: SharedProfiles, prior: tuple[Floats, Floats], feeds: int
) -> bytes:
    """Everything as one block of bytes."""
    arrays = {
        f"control_{each.name}": np.asarray(getattr(controller, each.name))
        for each in fields(controller)
    }
    arrays |= {
        f"preferred_{k}": strength_prior for k, strength_prior in enumerate(shapes.strength_prior)
    }
    arrays |= {"centres": shapes.centers, "shares": shapes.shares}
    arrays |= {"prior": np.stack(prior), "feeds": np.asarray(feeds)}
    block = io.BytesIO()
    np.savez(block, **arrays)  # type: ignore[arg-type]  # its one option is not among the names
    return block.getvalue()


def load_shared_state(saved: bytes) -> SharedState:
    """What `save_shared` gave."""
    try:
        with np.load(io.BytesIO(saved), allow_pickle=False) as arrays:
            strength_prior = tuple(
                arrays[name] for name in sorted(arrays.files) if name.startswith("preferred_")
            )
            shapes = SharedProfiles(arrays["centres"], arrays["shares"], strength_prior)
            controller = PriceController(
                *(arrays[f"control_{each.name}"] for each in fields(PriceController) if each.init)
            )
            for each in fields(PriceController):
                value = arrays[f"control_{each.name}"]
                plain = (
                    value.tolist()
                    if value.ndim == 0 or each.name in ("polls", "looks", "foretold")
                    else value
                )
                setattr(controller, each.name, plain)
            prior = arrays["prior"]
            return controller, shapes, (prior[0], prior[1]), int(arrays["feeds"])
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise UsageError(f"price: what was saved is not of this version ({error})") from None
