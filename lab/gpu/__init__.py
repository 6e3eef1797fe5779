"""GPU boards and MIG geometry, as the drivers of real boards report them."""
