//! Checks of the repository: pages and their examples, generated references, prose, names and modules.

mod ci_runner;
mod docs;
mod modules;
mod names;
mod page_tables;
mod prose;
mod reference;
mod security_page;
