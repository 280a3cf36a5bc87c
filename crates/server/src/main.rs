//! The program `tollbook`.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // A stream takes a few tens of kilobytes; huge pages would make the allocator's many small pieces weigh twice that.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    tollbook::cli::main(std::env::args_os())
}
