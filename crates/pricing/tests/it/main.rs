//! Tests of pricing.
