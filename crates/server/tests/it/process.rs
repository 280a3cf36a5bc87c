//! The program as a process, and the smallest HTTP client that can talk to it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(30);
pub(crate) const OPERATOR: &str = "operators-key";

pub(crate) struct Tollbook {
    child: Option<Child>,
    pub(crate) gateway: SocketAddr,
    pub(crate) admin: Option<SocketAddr>,
}

/// Waits until `look` finds something.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not in {LIMIT:?}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollbook"));
    command.args(arguments).env("TOLLBOOK_ADMIN_KEY", OPERATOR);
    command
}

impl Tollbook {
    /// Runs a command that listens, and waits for its addresses.
    pub(crate) fn start(arguments: &[&str], folder: &Path) -> Self {
        Self::start_logging(arguments, folder, Stdio::inherit())
    }

    /// The same, with its log in another place.
    pub(crate) fn start_logging(arguments: &[&str], folder: &Path, log: Stdio) -> Self {
        let file: PathBuf = folder.join("addresses.json");
        let _ = std::fs::remove_file(&file);
        let mut command = command(arguments);
        command.arg("--addr-file").arg(&file).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let addresses = until("addresses", || {
            assert!(child.try_wait().unwrap().is_none(), "it stopped at once");
            let text = std::fs::read_to_string(&file).ok()?;
            serde_json::from_str::<Value>(&text).ok()
        });
        let address = |name: &str| addresses[name].as_str()?.strip_prefix("http://")?.parse().ok();
        Self { child: Some(child), gateway: address("gateway").unwrap(), admin: address("admin") }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(self.child.as_ref().unwrap());
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end; tells what it printed.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let mut child = self.child.take().unwrap();
        let status = until("end", || child.try_wait().unwrap());
        let mut printed = String::new();
        child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        (status, printed)
    }

    pub(crate) fn stop(self) -> String {
        self.signal(Signal::TERM);
        let (status, printed) = self.wait();
        assert_eq!(status.code(), Some(0), "{printed}");
        printed
    }

    pub(crate) fn chat(&self, key: &str, body: &Value) -> (u16, Value) {
        call(self.gateway, "POST", "/v1/chat/completions", key, &body.to_string())
    }

    pub(crate) fn operators(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        call(self.admin.unwrap(), method, path, OPERATOR, &body.to_string())
    }

    /// The one limit of that name, as operators see it.
    pub(crate) fn limit(&self, name: &str) -> Value {
        let (status, page) = self.operators("GET", "/admin/v1/accounts", &Value::Null);
        assert_eq!(status, 200, "{page}");
        let found: Vec<&Value> =
            page["data"].as_array().unwrap().iter().filter(|line| line["limit"] == name).collect();
        assert_eq!(found.len(), 1, "{name} in {page}");
        found[0].clone()
    }
}

impl Drop for Tollbook {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends a request and leaves the answer to be read.
pub(crate) fn send(address: SocketAddr, method: &str, path: &str, key: &str, body: &str) -> TcpStream {
    send_with(address, method, path, key, "", body)
}

/// The same with further lines in its head.
fn send_with(address: SocketAddr, method: &str, path: &str, key: &str, lines: &str, body: &str) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    send_over(socket, address, (method, path, key), lines, body)
}

fn send_over(
    mut socket: TcpStream,
    address: SocketAddr,
    (method, path, key): (&str, &str, &str),
    lines: &str,
    body: &str,
) -> TcpStream {
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\nconnection: close\r\n{lines}content-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(body.as_bytes()).unwrap();
    socket
}

/// A whole answer that is JSON; null for an empty one.
pub(crate) fn call(address: SocketAddr, method: &str, path: &str, key: &str, body: &str) -> (u16, Value) {
    let (status, _, answer) = call_with(address, method, path, key, "", body);
    (status, answer)
}

/// The same with further lines in its head; tells the answer's head too, in small letters.
pub(crate) fn call_with(
    address: SocketAddr,
    method: &str,
    path: &str,
    key: &str,
    lines: &str,
    body: &str,
) -> (u16, String, Value) {
    answer_of(send_with(address, method, path, key, lines, body))
}

/// The same from an address of its own, one of the 65,536 that `from` numbers: whom the program takes for who asks.
pub(crate) fn call_from(
    from: u16,
    address: SocketAddr,
    asked: (&str, &str, &str),
    body: &str,
) -> (u16, String, Value) {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let [high, low] = from.to_be_bytes();
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::new(127, 7, high, low), 0)).unwrap();
    connect(&socket, &address).unwrap();
    answer_of(send_over(TcpStream::from(socket), address, asked, "", body))
}

fn answer_of(mut socket: TcpStream) -> (u16, String, Value) {
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), serde_json::from_str(body).unwrap_or(Value::Null))
}
