//! The way to the servers: scripts and commands, each answered or failed by its deadline.
//!
//! Invariants: no call outlives its deadline, whatever the servers or the network do; a failure says whether the call
//! may have been applied, and says *no* only where that is certain. A few connections per node are shared by all tasks.
//! When a connection is lost: its calls fail as unknown, it is opened anew in the background, further and further apart,
//! and calls meanwhile fail at once as not applied. Nothing is repeated that may have been applied.
//! Knows no verb and no key.

mod cluster;
mod connect;
mod error;
mod node;
mod options;
mod script;
mod sentinel;
mod slots;
mod url;

use std::sync::Arc;

use futures_util::future::join_all;
use redis::{Cmd, Value};
use tokio::time::{Duration, Instant};

pub use error::{Kind, LinkError};
pub use options::{Address, Options, Place, Tls, WrongOptions};
pub use script::Script;

use cluster::Cluster;
use connect::Connector;
use node::{Node, Source};
use sentinel::Sentinels;

/// Shared by every task of a gateway; closed when dropped.
#[derive(Debug)]
pub struct Link {
    servers: Servers,
    deadline: Duration,
}

#[derive(Debug)]
enum Servers {
    One(Node),
    Cluster(Cluster),
}

impl Link {
    /// Returns at once and connects in the background. Needs a runtime.
    ///
    /// # Errors
    /// When the options cannot be used.
    pub fn open(options: &Options) -> Result<Self, WrongOptions> {
        options.check()?;
        let connector = Arc::new(Connector::new(options)?);
        let one = |source| Servers::One(Node::new(source, &connector, options.connections));
        let servers = match &options.place {
            Place::Single(address) => one(Source::Fixed(address.clone())),
            Place::Sentinel { service, nodes } => {
                let to_them = Connector::to_sentinels(options)?;
                let sentinels = Sentinels::new(service.clone(), nodes.clone(), to_them);
                one(Source::Sentinels(Arc::new(sentinels)))
            }
            Place::Cluster(nodes) => {
                Servers::Cluster(Cluster::new(nodes.clone(), connector, options.connections))
            }
        };
        Ok(Self { servers, deadline: options.deadline })
    }

    /// Runs a script, which is brought to the server where it does not know it. All keys share a hash tag: the first tells
    /// the node. Behind `args` comes the `run_id` of the server that answers, empty where this user may not ask for it.
    ///
    /// # Errors
    /// By the deadline at the latest.
    pub async fn call(
        &self,
        script: &Script,
        keys: &[Vec<u8>],
        args: &[Vec<u8>],
    ) -> Result<Value, LinkError> {
        let (call, until) = (script.call(keys, args), self.until());
        match &self.servers {
            Servers::One(node) => node.run(script, &call, false, until).await,
            Servers::Cluster(cluster) => {
                cluster.run(script, &call, keys.first().map(Vec::as_slice), until).await
            }
        }
    }

    /// Sends one command to the node that has the key, or to any.
    ///
    /// # Errors
    /// By the deadline at the latest.
    pub async fn command(&self, command: &Cmd, key: Option<&[u8]>) -> Result<Value, LinkError> {
        let answer = match &self.servers {
            Servers::One(node) => node.send(command, false, self.until()).await,
            Servers::Cluster(cluster) => cluster.send(command, key, self.until()).await,
        };
        answer.map_err(LinkError::of_command)
    }

    /// Sends one command to every node that has keys; the answers stand beside the nodes' names.
    ///
    /// # Errors
    /// When it is not known which nodes there are. By the deadline at the latest.
    pub async fn everywhere(
        &self,
        command: &Cmd,
    ) -> Result<Vec<(String, Result<Value, LinkError>)>, LinkError> {
        let until = self.until();
        let ask = async |node: &Node| {
            let answer = node.send(command, false, until).await;
            (node.name(), answer.map_err(LinkError::of_command))
        };
        match &self.servers {
            Servers::One(node) => Ok(vec![ask(node).await]),
            Servers::Cluster(cluster) => {
                let nodes = cluster.primaries(until).await?;
                Ok(join_all(nodes.iter().map(|node| ask(node))).await)
            }
        }
    }

    /// Slots are spread over several nodes.
    pub fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster(_))
    }

    /// Who is named as primary is asked whether it is one.
    pub(crate) fn asks_role(&self) -> bool {
        matches!(&self.servers, Servers::One(node) if node.is_named_by_sentinels())
    }

    /// Longest a call takes.
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    fn until(&self) -> Instant {
        Instant::now() + self.deadline
    }
}
