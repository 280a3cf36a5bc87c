//! `tollbook serve`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tollbook_telemetry::log::{self, LogFormat, LogSettings};

use super::args::Serve;
use super::{Console, Failure, environment};
use crate::config::{self, file};
use crate::reload::{On, Reloader};
use crate::run::{Addresses, Running};

pub(super) fn run(args: &Serve, console: &mut Console<'_>) -> Result<(), Failure> {
    let setup = config::load(&args.config, &environment)?;
    log::init(&log_settings(&setup.log)).context("cannot set up logs")?;
    for warning in &setup.warnings {
        tracing::warn!("{warning}");
    }
    if setup.admin.is_none() {
        tracing::info!("the operator's listener is closed: no key is configured");
    }
    let runtime = runtime()?;
    let result = runtime.block_on(serve(setup, args, console));
    // After a second signal, what still runs is left behind.
    runtime.shutdown_background();
    result
}

async fn serve(setup: config::Setup, args: &Serve, console: &mut Console<'_>) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    // From now on a hangup is a wish, not an end.
    let hangups = signal(SignalKind::hangup())?;
    let read = (setup.files.clone(), setup.digest);
    let running = Running::start(setup).await?;
    announce(&running.addresses, args.addr_file.as_deref(), console)?;
    let on = if args.no_watch { On::Signal } else { On::Change };
    let reloader = Reloader::new(&args.config, read, Arc::clone(&running.metrics), environment, on);
    tokio::select! {
        () = signals.next() => {}
        () = reloader.run(&running.live, hangups) => {}
    }
    tracing::info!("stopping; a second signal stops at once");
    stop(running, &mut signals).await
}

/// Stops in good order, or at once at the next signal.
pub(super) async fn stop(running: Running, signals: &mut Signals) -> Result<(), Failure> {
    tokio::select! {
        () = running.stop() => Ok(()),
        () = signals.next() => Err(Failure::Run(anyhow!("stopped at once; what was not settled is in the log"))),
    }
}

pub(super) fn runtime() -> Result<Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Prints where to come in, and writes it to a file for programs.
pub(super) fn announce(
    addresses: &Addresses,
    addr_file: Option<&Path>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    if let Some(path) = addr_file {
        write_addresses(path, addresses).with_context(|| format!("cannot write {}", path.display()))?;
    }
    writeln!(console.out, "listening on {}", addresses.url())?;
    if let Some(admin) = addresses.admin {
        writeln!(console.out, "operators on http://{admin}")?;
    }
    console.out.flush()?;
    Ok(())
}

/// In one step, so that a reader sees a whole file or none.
fn write_addresses(path: &Path, addresses: &Addresses) -> io::Result<()> {
    let url = |address: std::net::SocketAddr| format!("http://{address}");
    let text = json!({"gateway": addresses.url(), "admin": addresses.admin.map(url)}).to_string();
    let beside = path.with_extension("new");
    std::fs::write(&beside, text)?;
    std::fs::rename(&beside, path)
}

fn log_settings(log: &file::Log) -> LogSettings {
    let level = match log.level {
        file::LogLevel::Error => "error",
        file::LogLevel::Warn => "warn",
        file::LogLevel::Info => "info",
        file::LogLevel::Debug => "debug",
    };
    let quiet = if log.level == file::LogLevel::Error { "error" } else { "warn" };
    LogSettings {
        format: match log.format {
            file::LogFormat::Auto => LogFormat::Auto,
            file::LogFormat::Text => LogFormat::Text,
            file::LogFormat::Json => LogFormat::Json,
        },
        filter: format!("{level},hyper={quiet},hyper_util={quiet},rustls={quiet},sqlx={quiet}"),
    }
}

/// SIGINT and SIGTERM.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
