"""Names of at most 63 characters, as Rancher and Cluster API make them."""

from __future__ import annotations

from lab.rancher.provisioning import names


def test_a_name_that_fits_is_kept_and_a_longer_one_is_cut_and_hashed() -> None:
    assert names.concatenated("demo", "gpu") == "demo-gpu"
    assert names.concatenated("a" * 31, "b" * 31) == f"{'a' * 31}-{'b' * 31}"
    cut = names.concatenated("demo", "b" * 63)
    assert len(cut) == 63
    assert cut != names.concatenated("demo", "b" * 64)
    # No hyphen stands before the hash's own.
    assert "--" not in names.concatenated("a" * 56, "b" * 20)


def test_generated_names_keep_their_random_part() -> None:
    assert names.generated("demo-gpu", "x7k2p") == "demo-gpu-x7k2p"
    assert len(names.generated("a" * 63, "x7k2p")) == 63
    assert names.generated("a" * 63, "x7k2p").endswith("x7k2p")
