//! The way to the servers: scripts and commands, each answered or failed by its deadline.
//!
//! Invariants: no call outlives its deadline, whatever the servers or the network do; a failure says whether the call
//! may have been applied, and says *no* only where that is certain. A few connections per node are shared by all tasks.
//! When a connection is lost: its calls fail as unknown, it is opened anew in the background, further and further apart,
//! and calls meanwhile fail at once as not applied. Nothing is repeated that may have been applied.
//! Knows no verb and no key.

mod connect;
mod error;
mod node;
mod options;
mod script;
mod url;

use std::sync::Arc;

use redis::{Cmd, Value};
use tokio::time::{Duration, Instant};

pub use error::{Kind, LinkError};
pub use options::{Address, Options, Place, Tls, WrongOptions};
pub use script::Script;

use connect::Connector;
use node::Node;

/// Shared by every task of a gateway; closed when dropped.
#[derive(Debug)]
pub struct Link {
    node: Node,
    deadline: Duration,
}

impl Link {
    /// Returns at once and connects in the background. Needs a runtime.
    ///
    /// # Errors
    /// When the options cannot be used.
    pub fn open(options: &Options) -> Result<Self, WrongOptions> {
        options.check()?;
        let connector = Arc::new(Connector::new(options)?);
        let Place::Single(address) = &options.place else { return Err(WrongOptions::NoNodes) };
        let node = Node::new(address, &connector, options.connections);
        Ok(Self { node, deadline: options.deadline })
    }

    /// Runs a script, which is brought to the server where it does not know it. All keys share a hash tag.
    ///
    /// # Errors
    /// By the deadline at the latest.
    pub async fn call(
        &self,
        script: &Script,
        keys: &[Vec<u8>],
        args: &[Vec<u8>],
    ) -> Result<Value, LinkError> {
        let call = script.call(keys, args);
        self.node.run(script, &call, Instant::now() + self.deadline).await
    }

    /// Sends one command, to the node of the key.
    ///
    /// # Errors
    /// By the deadline at the latest.
    pub async fn command(&self, command: &Cmd, _key: Option<&[u8]>) -> Result<Value, LinkError> {
        self.node.send(command, Instant::now() + self.deadline).await
    }
}
