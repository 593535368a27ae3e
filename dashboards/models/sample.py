"""What was read of the chosen requests, where they are too many to read them all."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Sampled(BaseModel):
    """``read`` of the ``of`` chosen requests: those of one slice of time in ``one_in``.

    Figures beside it whose description says so are of those read.
    """

    model_config = ConfigDict(frozen=True)

    one_in: int
    slices: int
    read: int
    of: int

    def sentence(self) -> str:
        return (
            f"Read: {self.read:,} of {self.of:,} requests, all those of {self.slices} slices of time "
            f"(one in {self.one_in}). Percentiles, means, sums and n of single figures are of those "
            "read; ask with exact=true (--exact) for all."
        )
