//! `tollbook demo`.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use tollbook_telemetry::log::{self, LogFormat, LogSettings};

use super::args::Demo;
use super::serve::{Signals, announce, runtime, stop};
use super::{Console, Failure, environment};
use crate::accounts;
use crate::config;
use crate::demo::provider::Provider;
use crate::demo::table::{back, draw};
use crate::demo::{self, Keys};
use crate::run::Running;

/// Where the demo listens if it is free.
const LISTEN: SocketAddr = SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 8080));
/// Time between two words of the fake provider.
const PACE: Duration = Duration::from_millis(15);
const REFRESH: Duration = Duration::from_millis(400);
/// Drawn into where the terminal does not tell its size.
const SIZE: (usize, usize) = (120, 40);

pub(super) fn run(args: &Demo, console: &mut Console<'_>) -> Result<(), Failure> {
    let filter = "error".to_owned();
    log::init(&LogSettings { format: LogFormat::Text, filter }).context("cannot set up logs")?;
    let folder = Folder::new(args.data_dir.clone())?;
    let runtime = runtime()?;
    let result = runtime.block_on(demo(args, &folder, console));
    runtime.shutdown_background();
    result
}

async fn demo(args: &Demo, folder: &Folder, console: &mut Console<'_>) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let provider = Provider::start(PACE).await.context("cannot start the fake provider")?;
    let keys = Keys::generate().context("cannot make keys")?;
    let listen = args.listen.unwrap_or_else(free_or_any);
    let text = demo::config(&keys, provider.addr, listen, &folder.path);
    let setup = config::load_text("the demo's configuration", &text, &folder.path, &environment)?;
    let running = Running::start(setup).await?;
    write!(console.out, "{}", demo::introduction(&keys, running.addresses.gateway, running.addresses.admin))?;
    writeln!(console.out)?;
    announce(&running.addresses, args.addr_file.as_deref(), console)?;
    tokio::select! {
        () = signals.next() => {}
        () = pause(args.stop_after) => {}
        failed = show(&running, console, !args.no_table) => failed?,
    }
    stop(running, &mut signals).await
}

async fn pause(length: Option<Duration>) {
    match length {
        Some(length) => tokio::time::sleep(length).await,
        None => std::future::pending().await,
    }
}

/// Draws the table in place, again and again; without a terminal it only waits.
async fn show(running: &Running, console: &mut Console<'_>, wanted: bool) -> Result<(), Failure> {
    if !(wanted && console.terminal) {
        return std::future::pending().await;
    }
    writeln!(console.out)?;
    let mut drawn = 0;
    let mut ticks = tokio::time::interval(REFRESH);
    loop {
        ticks.tick().await;
        let lines = accounts::standing(&running.admission, &[running.admission.snapshot()]).await?;
        let rows: Vec<_> = lines.iter().map(demo::row).collect();
        let (width, height) = terminal_size::terminal_size()
            .map_or(SIZE, |(width, height)| (usize::from(width.0), usize::from(height.0)));
        let table = draw(&rows, width, height.saturating_sub(1), console.colours);
        write!(console.out, "{}{table}", back(drawn))?;
        console.out.flush()?;
        drawn = table.lines().count();
    }
}

/// The usual port, or any if someone has it already.
fn free_or_any() -> SocketAddr {
    match TcpListener::bind(LISTEN) {
        Ok(_) => LISTEN,
        Err(_) => SocketAddr::new(LISTEN.ip(), 0),
    }
}

/// Where the demo keeps its book; one of its own is removed at the end.
struct Folder {
    path: PathBuf,
    own: bool,
}

impl Folder {
    fn new(given: Option<PathBuf>) -> anyhow::Result<Self> {
        if let Some(path) = given {
            return Ok(Self { path: std::path::absolute(path)?, own: false });
        }
        let mut bits = [0_u8; 8];
        getrandom::fill(&mut bits)?;
        let path = std::env::temp_dir().join(format!("tollbook-demo-{:016x}", u64::from_le_bytes(bits)));
        std::fs::create_dir(&path).with_context(|| format!("cannot make the folder {}", path.display()))?;
        Ok(Self { path, own: true })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.own {
            // What cannot be removed is in the folder for temporary files.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
