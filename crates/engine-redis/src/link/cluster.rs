//! A cluster: which node has a key, and what to do when it has it no more.
//!
//! Invariants: a call follows at most `HOPS_MAX` hints, none of them beyond its deadline; only a call that was refused is
//! sent on, so that none is applied twice. The map is read anew by one task: when a hint, a lost node or an unserved slot
//! says it is old, and every `REFRESH_EVERY`; at most once per `REFRESH_PAUSE`.
//! When slots are not served: their calls fail as not applied; those of other slots go on.

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::{Cmd, Value};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout, timeout_at};

use super::connect::Connector;
use super::error::{Kind, LinkError};
use super::node::{Node, Source};
use super::options::Address;
use super::script::Script;
use super::slots::{Hint, Range, hint, ranges, slot};

/// Most nodes one call is sent on to, and how many of them without a pause.
const HOPS_MAX: usize = 1_000;
const HOPS_AT_ONCE: usize = 3;
/// A slot whose keys are on their way is asked for again after this.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(5);
const REFRESH_EVERY: Duration = Duration::from_secs(15);
const REFRESH_PAUSE: Duration = Duration::from_millis(50);
/// A node that has no slots is forgotten after so many refreshes.
const UNSEEN_MAX: u32 = 8;

/// All nodes, and the task that keeps the map of slots.
#[derive(Debug)]
pub(super) struct Cluster {
    shared: Arc<Shared>,
    keeper: AbortHandle,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

#[derive(Debug)]
struct Shared {
    seeds: Vec<Address>,
    connector: Arc<Connector>,
    connections: usize,
    /// Told when the map is seen to be old.
    stale: Notify,
    view: watch::Sender<View>,
}

/// What is known of the cluster.
#[derive(Debug, Default)]
struct View {
    /// First slot of a range to its last slot and its node.
    ranges: BTreeMap<u16, (u16, Arc<Node>)>,
    nodes: BTreeMap<Address, Member>,
    is_read: bool,
    /// Who gave the map.
    answered: Option<Address>,
    /// What the last refresh said, if it failed.
    trouble: Option<LinkError>,
}

#[derive(Debug)]
struct Member {
    node: Arc<Node>,
    /// Refreshes since it was last named.
    unseen: u32,
}

impl Cluster {
    pub(super) fn new(seeds: Vec<Address>, connector: Arc<Connector>, connections: usize) -> Self {
        let (view, _) = watch::channel(View::default());
        let shared = Arc::new(Shared { seeds, connector, connections, stale: Notify::new(), view });
        let keeper = tokio::spawn(keep(Arc::clone(&shared))).abort_handle();
        Self { shared, keeper }
    }

    /// The call of a script, at the node that has the key.
    pub(super) async fn run(
        &self,
        script: &Script,
        call: &Cmd,
        key: Option<&[u8]>,
        until: Instant,
    ) -> Result<Value, LinkError> {
        let slot = key.map(slot);
        let (mut node, mut is_asking, mut hops) = (self.owner(slot, until).await?, false, 0);
        loop {
            match node.run(script, call, is_asking, until).await {
                Ok(value) => return Ok(value),
                Err(error) => (node, is_asking) = self.next(error, &node, slot, &mut hops, until).await?,
            }
        }
    }

    /// One command, at the node that has the key, or at any.
    pub(super) async fn send(
        &self,
        command: &Cmd,
        key: Option<&[u8]>,
        until: Instant,
    ) -> Result<Value, LinkError> {
        let slot = key.map(slot);
        let (mut node, mut is_asking, mut hops) = (self.owner(slot, until).await?, false, 0);
        loop {
            match node.send(command, is_asking, until).await {
                Ok(value) => return Ok(value),
                Err(error) => (node, is_asking) = self.next(error, &node, slot, &mut hops, until).await?,
            }
        }
    }

    /// All nodes that have slots.
    pub(super) async fn primaries(&self, until: Instant) -> Result<Vec<Arc<Node>>, LinkError> {
        self.is_read(until).await?;
        let view = self.shared.view.borrow();
        let mut nodes: BTreeMap<String, Arc<Node>> = BTreeMap::new();
        for (_, node) in view.ranges.values() {
            nodes.insert(node.name(), Arc::clone(node));
        }
        Ok(nodes.into_values().collect())
    }

    /// Where a call that failed may be sent on to, and whether that node is to be asked for once.
    async fn next(
        &self,
        error: LinkError,
        asked: &Node,
        slot: Option<u16>,
        hops: &mut usize,
        until: Instant,
    ) -> Result<(Arc<Node>, bool), LinkError> {
        let is_away = matches!(error.kind, Kind::Refused | Kind::Lost | Kind::Deadline | Kind::ReadOnly);
        // A slot that is on its way is where the map says until it has arrived.
        let is_moved = error.message.starts_with("MOVED ") || error.message.starts_with("CLUSTERDOWN ");
        if is_away || is_moved {
            self.shared.stale.notify_one();
        }
        let Some(hint) = hint(&error.message).filter(|_| *hops < HOPS_MAX) else { return Err(error) };
        *hops += 1;
        // Nodes that learn of a move one after the other send a call to and fro: it waits until they agree.
        let waits = *hops > HOPS_AT_ONCE || matches!(hint, Hint::TryAgain);
        if waits && timeout_at(until, sleep(TRY_AGAIN_AFTER)).await.is_err() {
            return Err(error);
        }
        match hint {
            Hint::Moved(host, port) => Ok((self.shared.member(&asked.near(host, port)), false)),
            Hint::Ask(host, port) => Ok((self.shared.member(&asked.near(host, port)), true)),
            Hint::TryAgain => Ok((self.owner(slot, until).await?, false)),
        }
    }

    async fn owner(&self, slot: Option<u16>, until: Instant) -> Result<Arc<Node>, LinkError> {
        self.is_read(until).await?;
        let view = self.shared.view.borrow();
        let slot = slot.unwrap_or_default();
        let range = view.ranges.range(..=slot).next_back().filter(|(_, (last, _))| slot <= *last);
        if let Some((_, (_, node))) = range {
            return Ok(Arc::clone(node));
        }
        self.shared.stale.notify_one();
        Err(LinkError::no(Kind::Cluster, format!("no node has slot {slot}")))
    }

    /// Waits until the map was read, or could not be.
    async fn is_read(&self, until: Instant) -> Result<(), LinkError> {
        if self.shared.view.borrow().is_read {
            return Ok(());
        }
        let mut view = self.shared.view.subscribe();
        let waited = timeout_at(until, view.wait_for(|view| view.is_read || view.trouble.is_some())).await;
        match waited {
            Ok(Ok(view)) => match &view.trouble {
                Some(trouble) if !view.is_read => Err(trouble.clone()),
                _ => Ok(()),
            },
            Ok(Err(_)) => Err(LinkError::no(Kind::Cluster, "the map of slots is not kept")),
            Err(_) => Err(LinkError::no(Kind::Deadline, "no map of slots in time")),
        }
    }
}

impl Shared {
    /// The node at an address; a new one where a slot moves to a node that had none.
    fn member(&self, address: &Address) -> Arc<Node> {
        let mut found = None;
        // Nobody waits for a node to become known.
        self.view.send_if_modified(|view| {
            found = Some(self.in_view(view, address));
            false
        });
        found.unwrap_or_else(|| self.node(address))
    }

    fn in_view(&self, view: &mut View, address: &Address) -> Arc<Node> {
        let member = view.nodes.entry(address.clone());
        let member = member.or_insert_with(|| Member { node: self.node(address), unseen: 0 });
        member.unseen = 0;
        Arc::clone(&member.node)
    }

    fn node(&self, address: &Address) -> Arc<Node> {
        Arc::new(Node::new(Source::Fixed(address.clone()), &self.connector, self.connections))
    }

    /// Reads the map from the first node that gives it.
    async fn refresh(&self) {
        let known: Vec<Address> = {
            let view = self.view.borrow();
            // Who answered last comes first: one that takes connections and is silent costs time only once.
            view.answered.iter().chain(view.nodes.keys()).chain(&self.seeds).cloned().collect()
        };
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let mut trouble = LinkError::no(Kind::Refused, "no node is known");
        for address in known {
            match self.connector.ask(&address, &command).await {
                Ok(map) => match ranges(&map, &address.host) {
                    Some(ranges) => return self.learn(ranges, address),
                    None => trouble = LinkError::no(Kind::Cluster, format!("{address}: no map of slots")),
                },
                Err(error) => trouble = error,
            }
        }
        self.view.send_modify(|view| view.trouble = Some(trouble));
    }

    fn learn(&self, ranges: Vec<Range>, from: Address) {
        self.view.send_modify(|view| {
            for member in view.nodes.values_mut() {
                member.unseen = member.unseen.saturating_add(1);
            }
            view.ranges.clear();
            for range in ranges {
                let node = self.in_view(view, &range.primary);
                view.ranges.insert(range.first, (range.last, node));
            }
            view.nodes.retain(|_, member| member.unseen <= UNSEEN_MAX);
            (view.trouble, view.is_read, view.answered) = (None, true, Some(from));
        });
    }
}

async fn keep(shared: Arc<Shared>) {
    loop {
        let pause = Instant::now() + REFRESH_PAUSE;
        shared.refresh().await;
        sleep_until(pause).await;
        let has_trouble = shared.view.borrow().trouble.is_some();
        let next = if has_trouble { REFRESH_PAUSE } else { REFRESH_EVERY };
        // Told or not, it is time then.
        let _ = timeout(next, shared.stale.notified()).await;
    }
}
