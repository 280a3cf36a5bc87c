//! The fake provider as a process: `mock-upstream [--port N]`. It prints its address and runs until it is killed.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use tollbook_mock_upstream::MockUpstream;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "mock-upstream: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> std::io::Result<()> {
    let mut port = 0_u16;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().and_then(|value| value.parse().ok());
        match (argument.as_str(), value) {
            ("--port", Some(value)) => port = value,
            _ => return Err(std::io::Error::other("usage: mock-upstream [--port N]")),
        }
    }
    let upstream = MockUpstream::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
    writeln!(std::io::stdout(), "listening on {}", upstream.url())?;
    std::io::stdout().flush()?;
    std::future::pending::<()>().await;
    Ok(())
}
