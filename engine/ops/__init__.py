"""vcc's operators: schemas, fakes, native and CPU back ends."""
