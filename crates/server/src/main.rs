//! The program `tollbook`.

fn main() {}
