//! A real MariaDB server for a test, with one empty database.
//!
//! Invariants: each test has its own server, port and folder; a server that exists has answered; none outlives the test's
//! process, however that ends; waiting is always for a state, with a deadline. What cannot be started is a panic that says
//! what to do. Links no code of the product and no driver.
//! What the server has acknowledged survives `kill -9`: nothing is kept in its own memory alone. It does not wait for the disk.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tollbook_redis_world::ports::{self, Port};
use tollbook_redis_world::{fail, folder, process, wait_for};

const PROGRAM: &str = "mariadbd";
/// Beside the program that `cargo xtask setup` has put there: what fills an empty folder.
const SHARE: &str = "mariadb-share";
const SHARE_OF_THE_MACHINE: &str = "/usr/share/mysql";
const TABLES: [&str; 2] = ["mysql_system_tables.sql", "mysql_system_tables_data.sql"];
const PEM_FILES: [&str; 3] = ["authority.pem", "certificate.pem", "key.pem"];
const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(20);
const LOOK_LIMIT: Duration = Duration::from_secs(1);

/// The user that tests come as, and the password that must show nowhere.
pub const USER: &str = "tollbook";
pub const PASSWORD: &str = "pw-t3st";
/// The database that is there, empty.
pub const DATABASE: &str = "store";

/// What a server shows in TLS, and by whom it wants to be shown the same; PEM.
#[derive(Clone, Copy, Debug)]
pub struct Tls<'a> {
    pub authority: &'a str,
    pub certificate: &'a str,
    pub key: &'a str,
}

/// A running server, or one that was killed and can be started again.
#[derive(Debug)]
pub struct Server {
    dir: TempDir,
    port: Port,
    child: Option<Child>,
    is_secure: bool,
}

impl Server {
    /// Returns when it answers.
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// One that lets nobody in without TLS.
    pub fn start_secure(tls: &Tls<'_>) -> Self {
        Self::start_with(Some(tls))
    }

    fn start_with(tls: Option<&Tls<'_>>) -> Self {
        let mut server =
            Self { dir: folder::new(), port: ports::free(), child: None, is_secure: tls.is_some() };
        server.fill();
        if let Some(Tls { authority, certificate, key }) = tls {
            for (name, text) in PEM_FILES.into_iter().zip([authority, certificate, key]) {
                let path = server.dir.path().join(name);
                fs::write(&path, text).unwrap_or_else(|error| fail(&format!("{}: {error}", path.display())));
            }
        }
        server.start_again();
        server
    }

    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port.number()))
    }

    /// Where the store's database is, with the password.
    pub fn url(&self) -> String {
        self.url_of(DATABASE)
    }

    pub fn url_of(&self, database: &str) -> String {
        format!("mysql://{USER}:{PASSWORD}@{}/{database}", self.addr())
    }

    /// Starts on the same port and the same data.
    pub fn start_again(&mut self) {
        if self.child.is_some() {
            fail("it runs already");
        }
        let program = process::find(PROGRAM);
        let mut args = self.args(&program);
        args.push(format!("--port={}", self.port.number()));
        args.push("--bind-address=127.0.0.1".to_owned());
        args.push(format!("--socket={}", self.dir.path().join("socket").display()));
        args.push(format!("--pid-file={}", self.dir.path().join("pid").display()));
        if self.is_secure {
            args.push("--require-secure-transport=ON".to_owned());
            for (option, name) in ["ssl-ca", "ssl-cert", "ssl-key"].into_iter().zip(PEM_FILES) {
                args.push(format!("--{option}={}", self.dir.path().join(name).display()));
            }
        }
        let child = process::start(&program, &args, self.dir.path(), &self.log_file())
            .unwrap_or_else(|error| fail(&format!("cannot start {}: {error}", program.display())));
        self.child = Some(child);
        let ready = wait_for(START_LIMIT, || {
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten()) {
                fail(&format!("{PROGRAM} ended: {status}\n{}", self.log()));
            }
            self.greets().then_some(())
        });
        if ready.is_none() {
            fail(&format!("not ready in time\n{}", self.log()));
        }
    }

    /// SIGKILL: what a crash leaves behind.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { fail("not running") };
        if let Err(error) = child.kill() {
            fail(&format!("no signal: {error}"));
        }
        if wait_for(STOP_LIMIT, || child.try_wait().ok().flatten()).is_none() {
            fail(&format!("did not end in time\n{}", self.log()));
        }
    }

    /// What it has written since it was first started.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// A server that is ready sends the first packet.
    fn greets(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect_timeout(&self.addr(), LOOK_LIMIT) else { return false };
        let mut head = [0; 5];
        // A packet's length and number, then the version of the protocol.
        stream.set_read_timeout(Some(LOOK_LIMIT)).is_ok()
            && stream.read_exact(&mut head).is_ok()
            && head.last() == Some(&10)
    }

    fn args(&self, program: &Path) -> Vec<String> {
        let mut args = vec!["--no-defaults".to_owned()];
        let share = share(program);
        if let Ok(real) = fs::canonicalize(&share)
            && let Some(base) = real.parent().and_then(Path::parent)
        {
            args.push(format!("--basedir={}", base.display()));
            args.push(format!("--lc-messages-dir={}", real.display()));
        }
        // As root it starts only if it is told to.
        if rustix::process::geteuid().is_root() {
            args.push("--user=root".to_owned());
        }
        args.push(format!("--datadir={}", self.dir.path().join("data").display()));
        // Servers that share one take each other's temporary tables for their own.
        args.push(format!("--tmpdir={}", self.dir.path().display()));
        let small = [
            "--innodb-buffer-pool-size=16M",
            "--innodb-log-file-size=8M",
            "--innodb-data-file-path=ibdata1:2M:autoextend",
            "--innodb-undo-tablespaces=0",
            "--innodb-flush-log-at-trx-commit=2",
            "--skip-name-resolve",
        ];
        args.extend(small.map(str::to_owned));
        args
    }

    /// The server's own tables, the user and the database.
    fn fill(&self) {
        let program = process::find(PROGRAM);
        let share = share(&program);
        let mut text = String::from("CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n");
        for file in TABLES {
            let path = share.join(file);
            let read = fs::read_to_string(&path);
            text.push_str(&read.unwrap_or_else(|error| fail(&format!("{}: {error}", path.display()))));
        }
        text.push_str("\nFLUSH PRIVILEGES;\n");
        for line in [
            format!("CREATE USER {USER}@'%' IDENTIFIED BY '{PASSWORD}';\n"),
            format!("GRANT ALL ON *.* TO {USER}@'%' WITH GRANT OPTION;\nCREATE DATABASE {DATABASE};\n"),
        ] {
            text.push_str(&line);
        }
        if let Err(error) = fs::create_dir_all(self.dir.path().join("data")).and_then(|()| self.feed(&text)) {
            fail(&format!("the server's folder cannot be filled: {error}\n{}", self.log()));
        }
    }

    fn feed(&self, text: &str) -> std::io::Result<()> {
        let program = process::find(PROGRAM);
        let log = fs::File::create(self.log_file())?;
        let mut command = Command::new(&program);
        command.args(self.args(&program)).args(["--bootstrap", "--innodb-flush-log-at-trx-commit=0"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(text.as_bytes())?;
        }
        let status = child.wait()?;
        if status.success() { Ok(()) } else { Err(std::io::Error::other(status.to_string())) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "--- log of {PROGRAM} ---\n{}", self.log());
        }
    }
}

fn share(program: &Path) -> PathBuf {
    let beside = program.parent().map(|folder| folder.join(SHARE));
    beside.filter(|folder| folder.is_dir()).unwrap_or_else(|| PathBuf::from(SHARE_OF_THE_MACHINE))
}
