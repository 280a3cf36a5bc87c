//! The servers that other tests stand on do what they are told.

mod single;
