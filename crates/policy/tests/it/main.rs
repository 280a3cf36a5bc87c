//! Tests of policy.
