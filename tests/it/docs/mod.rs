//! Checks the pages of the documentation: their blocks, the sessions that they show, and the
//! demo.

mod blocks;
mod demo;
mod page;
mod sessions;
mod shell;
