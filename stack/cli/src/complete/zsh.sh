#compdef NAME
_NAME() {
    local -a all dirs open closed
    local one value result=1
    all=("${(@f)$(_CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$((CURRENT - 1)) VARIABLE=zsh COMPLETER -- "${words[@]}" 2>/dev/null)}")
    for one in $all; do
        # VALUE or VALUE:HELP, where a colon of the value has a backslash before it.
        value=${${one//\\:/$'\1'}%%:*}
        case $value in
            */) dirs+=("${${one/\/:/:}%/}") ;;
            *$'\1' | *=) open+=("$one") ;;
            *) closed+=("$one") ;;
        esac
    done
    # Behind a directory, and behind what ends with a colon or =, more is to come: no blank.
    (( $#dirs )) && _describe -V values dirs -S / -r / && result=0
    (( $#open )) && _describe -V values open -S '' && result=0
    (( $#closed )) && _describe -V values closed && result=0
    return result
}
# From $fpath this file is loaded by the first TAB, which wants an answer; else it was sourced.
if [[ ${funcstack[1]} == _NAME ]]; then
    _NAME "$@"
else
    compdef _NAME NAME
fi
