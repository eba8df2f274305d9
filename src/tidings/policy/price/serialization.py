"""Convert the state that all feeds of `price` share to bytes and back.

The state (controller, profiles, prior of the rates) is stored as arrays in numpy's npz format,
without pickle: loading invalid data cannot execute code.
"""

import io
import zipfile
from dataclasses import fields

import numpy as np

from tidings.errors import UsageError
from tidings.model import Floats
from tidings.policy.price.controller import PriceController
from tidings.policy.price.weekly_profile import SharedProfiles

#: Controller, shared profiles, prior of the rate model, number of feeds when the price was
#: computed.
SharedState = tuple[PriceController, SharedProfiles, tuple[Floats, Floats], int]

#: Stored names of controller fields that have been renamed since the format was defined. The keys
#: of the format never change, so that the state of earlier versions can be restored.
SAVED_NAMES = {
    "started_at": "started",
    "simulated_polls": "rehearsed",
    "waived_polls": "forgiven",
    "tick_count": "ticks",
    "polls_with_peers": "looks",
    "predicted_polls": "foretold",
    "slot_shares": "timetable",
    "participation": "turns",
    "demand_bias": "bias",
}
#: Controller fields that are lists; the other array fields stay numpy arrays.
LIST_FIELDS = ("polls", "polls_with_peers", "predicted_polls")


def _key(field_name: str) -> str:
    """Return the key under which a field of the controller is stored."""
    return f"control_{SAVED_NAMES.get(field_name, field_name)}"


def save_shared_state(
    controller: PriceController, profiles: SharedProfiles, prior: tuple[Floats, Floats], feeds: int
) -> bytes:
    """Return the shared state as bytes.

    ``feeds`` is the number of feeds when the price was computed.
    """
    arrays = {
        _key(each.name): np.asarray(getattr(controller, each.name)) for each in fields(controller)
    }
    arrays |= {f"preferred_{k}": layer for k, layer in enumerate(profiles.strength_prior)}
    arrays |= {"centres": profiles.centers, "shares": profiles.shares}
    arrays |= {"prior": np.stack(prior), "feeds": np.asarray(feeds)}
    block = io.BytesIO()
    np.savez(block, **arrays)  # type: ignore[arg-type]  # no array is called allow_pickle
    return block.getvalue()


def load_shared_state(saved: bytes) -> SharedState:
    """Return the shared state from the bytes of `save_shared_state`.

    Raises `UsageError` if the data is invalid or from an incompatible version.
    """
    try:
        with np.load(io.BytesIO(saved), allow_pickle=False) as arrays:
            strength_prior = tuple(
                arrays[name] for name in sorted(arrays.files) if name.startswith("preferred_")
            )
            profiles = SharedProfiles(arrays["centres"], arrays["shares"], strength_prior)
            controller = PriceController(
                *(arrays[_key(each.name)] for each in fields(PriceController) if each.init)
            )
            for each in fields(PriceController):
                stored = arrays[_key(each.name)]
                to_python = stored.ndim == 0 or each.name in LIST_FIELDS
                setattr(controller, each.name, stored.tolist() if to_python else stored)
            prior = arrays["prior"]
            return controller, profiles, (prior[0], prior[1]), int(arrays["feeds"])
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"price: the saved state is invalid or from an incompatible version ({error})"
        ) from None
