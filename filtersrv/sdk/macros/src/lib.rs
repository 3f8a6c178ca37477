//! The attributes `#[filter]` and `#[init]` of the filter SDK: each keeps the function as it is and
//! adds the export a filter server looks for, on the WebAssembly target only.
#![forbid(unsafe_code)]

use proc_macro::{TokenStream, TokenTree};

/// Makes `fn NAME(message: &Message) -> bool` (or `-> Result<bool, Error>`) the module's filter.
#[proc_macro_attribute]
pub fn filter(_arguments: TokenStream, function: TokenStream) -> TokenStream {
    export(
        function,
        "filter",
        "::minimq_filter_sdk::Verdict::answer(NAME(&::minimq_filter_sdk::Message::current()))",
        "#[unsafe(export_name = \"minimq_filter_abi_1\")] extern \"C\" fn minimq_filter_marker() {}",
    )
}

/// Makes `fn NAME() -> Result<(), Error>` run once before the first message of each instance.
#[proc_macro_attribute]
pub fn init(_arguments: TokenStream, function: TokenStream) -> TokenStream {
    export(
        function,
        "init",
        "::minimq_filter_sdk::Verdict::answer(NAME().map(|()| false))",
        "",
    )
}

fn export(function: TokenStream, export: &str, call: &str, more: &str) -> TokenStream {
    let mut names = function
        .clone()
        .into_iter()
        .skip_while(|token| token.to_string() != "fn")
        .skip(1);
    let Some(TokenTree::Ident(name)) = names.next() else {
        let text = format!("compile_error!(\"#[{export}] belongs on a function\");");
        return text.parse().unwrap_or_default();
    };
    let call = call.replace("NAME", &name.to_string());
    let exports = format!(
        "#[cfg(target_arch = \"wasm32\")] const _: () = {{
            #[unsafe(export_name = \"{export}\")]
            extern \"C\" fn minimq_filter_export() -> i32 {{ {call} }}
            {more}
        }};"
    );
    let exports: TokenStream = exports.parse().unwrap_or_default();
    function.into_iter().chain(exports).collect()
}
