"""What a test has to say to Open MPI's launcher; others pass over it."""

# Root, and more ranks than cores.
RANKS_ALLOWED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                 "OMPI_MCA_rmaps_base_oversubscribe": "1"}
