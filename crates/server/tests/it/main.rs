//! Tests of the program and its configuration.

mod config;
