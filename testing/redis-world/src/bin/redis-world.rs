//! Servers to try things with: `redis-world redis|valkey|cluster|sentinel` prints an address and a process id per server
//! and keeps them until its input ends, or it is killed.

use std::io::{self, Read as _, Write as _};

use tollbook_redis_world::{Cluster, SERVICE, Sentinels, Server};

fn main() -> io::Result<()> {
    let kind = std::env::args().nth(1).unwrap_or_default();
    match kind.as_str() {
        "redis" => keep(&[&Server::redis()], "redis"),
        "valkey" => keep(&[&Server::valkey()], "redis"),
        "cluster" => {
            let cluster = Cluster::start();
            keep(&cluster.nodes().iter().collect::<Vec<_>>(), "redis+cluster")
        }
        "sentinel" => {
            let all = Sentinels::start();
            keep(&all.sentinels().iter().collect::<Vec<_>>(), "redis+sentinel")
        }
        other => Err(io::Error::other(format!("'{other}': redis, valkey, cluster or sentinel"))),
    }
}

fn keep(servers: &[&Server], scheme: &str) -> io::Result<()> {
    let addresses: Vec<String> = servers.iter().map(|server| server.addr().to_string()).collect();
    let path = if scheme == "redis+sentinel" { format!("/{SERVICE}") } else { String::new() };
    let mut out = io::stdout().lock();
    writeln!(out, "{scheme}://{}{path}", addresses.join(","))?;
    for server in servers {
        writeln!(out, "{} {}", server.pid().unwrap_or_default(), server.dir().display())?;
    }
    out.flush()?;
    io::stdin().lock().read_to_end(&mut Vec::new()).map(|_| ())
}
