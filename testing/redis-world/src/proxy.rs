//! A wire between clients and a server that can be slow, cut, or a hole.
//!
//! Invariants: bytes are never changed, dropped or reordered: what a hole holds back passes when it is healed, as packets
//! sent again would, or is lost with its connection. All threads end soon after this is dropped.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{fail, pause};

const READ_BYTES: usize = 16 * 1024;

/// What the wire does with bytes that reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Pass,
    /// Each way.
    Delay(Duration),
    /// Nothing passes either way; connections stay, and new ones are taken.
    Hole,
    /// What is asked arrives, what is answered does not.
    MuteAnswers,
    /// New connections are closed at once.
    Closed,
}

/// A wire to one server.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    wire: Arc<Wire>,
}

#[derive(Debug)]
struct Wire {
    target: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    is_over: bool,
    /// Both ends of each connection.
    open: Vec<(u64, TcpStream, TcpStream)>,
    taken: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    There,
    Back,
}

impl Proxy {
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").and_then(|l| Ok((l.local_addr()?, l)));
        let (addr, listener) = listener.unwrap_or_else(|error| fail(&format!("no port: {error}")));
        let state = State { mode: Mode::Pass, is_over: false, open: Vec::new(), taken: 0 };
        let wire = Arc::new(Wire { target, state: Mutex::new(state), changed: Condvar::new() });
        let taker = Arc::clone(&wire);
        std::thread::spawn(move || taker.take(&listener));
        Self { addr, wire }
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// For bytes and connections that come from now on; what a hole held back passes if the new mode lets it.
    pub fn set(&self, mode: Mode) {
        self.wire.state().mode = mode;
        self.wire.changed.notify_all();
    }

    /// Closes all connections. What was held back is lost.
    pub fn cut(&self) {
        for (_, client, server) in self.wire.state().open.drain(..) {
            close(&client);
            close(&server);
        }
        self.wire.changed.notify_all();
    }

    /// Connections taken since the start.
    pub fn taken(&self) -> u64 {
        self.wire.state().taken
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.wire.state().open.len()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.wire.state().is_over = true;
        self.cut();
        // The one that waits for a connection gets one.
        drop(TcpStream::connect(self.addr));
    }
}

impl Wire {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Self>, listener: &TcpListener) {
        while let Ok((client, _)) = listener.accept() {
            let mode = {
                let mut state = self.state();
                if state.is_over {
                    return;
                }
                state.taken += 1;
                state.mode
            };
            if mode == Mode::Closed {
                continue;
            }
            // A server that is away closes the client's connection too.
            let Ok(server) = TcpStream::connect(self.target) else { continue };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            if self.join(&client, &server).is_none() {
                close(&client);
            }
        }
    }

    fn join(self: &Arc<Self>, client: &TcpStream, server: &TcpStream) -> Option<()> {
        let copy = |stream: &TcpStream| stream.try_clone().ok();
        let number = {
            let mut state = self.state();
            let number = state.taken;
            state.open.push((number, copy(client)?, copy(server)?));
            number
        };
        let pairs = [(copy(client)?, copy(server)?, Way::There), (copy(server)?, copy(client)?, Way::Back)];
        for (from, to, way) in pairs {
            let wire = Arc::clone(self);
            std::thread::spawn(move || {
                wire.pump(from, to, way, number);
            });
        }
        Some(())
    }

    /// Until one end closes; then both are closed.
    fn pump(&self, mut from: TcpStream, mut to: TcpStream, way: Way, number: u64) {
        let mut buffer = vec![0; READ_BYTES];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let Some(delay) = self.may_pass(way, number) else { break };
            if !delay.is_zero() {
                pause(delay);
            }
            if buffer.get(..length).is_none_or(|bytes| to.write_all(bytes).is_err()) {
                break;
            }
        }
        close(&from);
        close(&to);
        self.state().open.retain(|(other, ..)| *other != number);
    }

    /// Waits while nothing may pass. How long to delay, or nothing when the connection was cut.
    fn may_pass(&self, way: Way, number: u64) -> Option<Duration> {
        let mut state = self.state();
        loop {
            if !state.open.iter().any(|(other, ..)| *other == number) {
                return None;
            }
            match (state.mode, way) {
                (Mode::Hole, _) | (Mode::MuteAnswers, Way::Back) => {}
                (Mode::Delay(delay), _) => return Some(delay),
                _ => return Some(Duration::ZERO),
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn close(stream: &TcpStream) {
    // It may be closed already.
    let _ = stream.shutdown(Shutdown::Both);
}
