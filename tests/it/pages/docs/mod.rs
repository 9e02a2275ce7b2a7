//! Checks the pages of the documentation: their links, their blocks, the sessions that they
//! show, and the demo.

mod blocks;
mod ci_page;
mod demo;
mod links;
mod page;
mod sessions;
mod shell;
