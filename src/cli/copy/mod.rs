//! Commands that write packages of daemons to this machine, and the lock of approved packages.

pub mod lock;
pub mod pull;

use super::failure::CommandFailure;
use super::output::write_stdout;

fn print_lines(lines: &[String]) -> Result<(), CommandFailure> {
    write_stdout(|stdout| lines.iter().try_for_each(|line| writeln!(stdout, "{line}")))
}
