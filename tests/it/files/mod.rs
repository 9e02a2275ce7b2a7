//! Discovery and resolution of files below a root: trees, links, races, permissions and large or strange files.

mod corpus;
mod costly_files;
mod large_root;
mod permission;
mod race;
mod resolution;
mod syscalls;
mod trees;
mod unsized_files;
