//! The data plane: dialects, upstreams, relay, meter.
//!
//! Serves clients over HTTP/1.1 and HTTP/2, plain or TLS, asks `admission` for every call, relays what the provider answers, and hands the outcome
//! to the call's Ticket. Invariants: no metered path around admission; every refusal is JSON of the client's dialect;
//! every body, head, queue and silence has a bound; our credentials go only upstream, the client's never do.
//! Knows no engine, no store and no SQL.

mod body;
mod budget;
mod call;
mod config;
mod connect;
mod cors;
mod cut;
mod detach;
mod encoding;
mod figures;
mod gateway;
mod headers;
mod hidden;
mod http2;
mod intake;
mod limits;
mod listen;
mod naming;
mod open;
mod outgoing;
mod pace;
mod pass;
mod pass_body;
mod passes;
mod paths;
mod peer;
mod plane;
mod prefixed;
mod problem;
mod proxy_protocol;
mod refusal;
mod relay;
mod screen;
mod stall;
mod tls;
mod trace;
mod upload;
mod upstream;
mod whole;

pub use config::{Bounds, Config, Cors, Http2, Passes, Proxies, Proxy, Timeouts, Tls, Upstream, UpstreamTls};
pub use gateway::Gateway;
pub use passes::{may_be_opened, passed_paths};
pub use paths::served_paths;
pub use plane::Prepared;
pub use screen::{HeadBounds, Screen, refused_head};
pub use tls::{TlsError, TlsFile};
pub use tollbook_admission::Network;
