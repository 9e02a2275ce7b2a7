//! Compiles `proto/` with protox and tonic-prost-build, without protoc. `proto` is a link to the
//! directory at the top of the repository.

use prost::Message as _;
use std::env;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=proto");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let descriptors = protox::compile(["caproot/v1/capability_service.proto"], ["proto"])?;
    // Server reflection and the JSON that the command line prints both read this.
    std::fs::write(out.join("caproot.v1.bin"), descriptors.encode_to_vec())?;
    // Ordered maps are encoded in the order of their keys, as catalog digests require.
    let generator = tonic_prost_build::configure().btree_map(".");
    generator
        .include_file("caproot.rs")
        .compile_fds(descriptors)?;
    // Not part of the service, so not in the descriptors of reflection.
    let link = protox::compile(["caproot/link/v1/link.proto"], ["proto"])?;
    let generator = tonic_prost_build::configure().bytes(".caproot.link.v1.TunnelFrame.data");
    generator
        .include_file("caproot_link.rs")
        .compile_fds(link)?;
    Ok(())
}
