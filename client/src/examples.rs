//! The examples, a page each. They are run as `cargo run -p minimq-client --example NAME` against `NAMESRV_ADDR`, or
//! 127.0.0.1:9876; each checks what it shows and ends by itself.

macro_rules! pages {
    ($($name:ident $title:literal)*) => {$(
        #[doc = $title]
        ///
        #[doc = concat!("```rust,ignore\n", include_str!(concat!("../examples/", stringify!($name), ".rs")), "```")]
        pub mod $name {}
    )*};
}

pages! {
    quickstart "A producer and a consumer."
    ordered "Messages of one key in order."
    delay "Messages that come later."
    transaction "Messages that come only if something else was done."
    batch "Many messages as one, by hand and by time and size."
    request_reply "A question and its answer."
    tag_filter "Only some tags."
    sql_filter "Only what an expression wants."
    wasm_filter "Only what a WebAssembly module of one's own wants."
    lite_pull "Messages when the application wants them."
    stream "Messages as a stream, each acknowledged."
    broadcast "Every message to everybody."
}
