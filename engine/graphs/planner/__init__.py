"""The planner: from the pieces of a step to one symbolic node table, without a GPU."""
