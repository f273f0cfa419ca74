
# bash takes = and : for the end of a word, which they are not for NAME: --log=debug is one.
_NAME_whole_words() {
    local rest=$COMP_LINE before= current=$2 at=-1 i word blank
    local words=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        blank=${rest%%[![:blank:]]*}
        rest=${rest#"$blank"}
        rest=${rest#"$word"}
        if [[ $i -eq 0 || -n $blank ]]; then
            at=$((at + 1)) before=
            words[at]=
        fi
        if [[ $i -lt $COMP_CWORD || ( -z $current && $word =~ ^[=:]+$ ) ]]; then
            before+=$word
        fi
        words[at]+=$word
    done
    words[at]=$before$current
    local COMP_WORDS=("${words[@]}") COMP_CWORD=$at
    FUNCTION "$1" "$before$current" "${words[at - 1]}"
    for i in "${!COMPREPLY[@]}"; do
        COMPREPLY[i]=${COMPREPLY[i]#"$before"}
    done
}
_NAME_registered=$(complete -p NAME)
eval "${_NAME_registered/-F FUNCTION/-F _NAME_whole_words}"
unset _NAME_registered
