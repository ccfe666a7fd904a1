//! The composition root.

fn main() {}
