_clap_complete_leasehold() {
    # Bash also splits words at `:` and `=`, but lock names contain colons. Join pieces that have no space between them.
    local words=() index=0 at word rest=$COMP_LINE bare
    for at in "${!COMP_WORDS[@]}"; do
        word=${COMP_WORDS[at]}
        bare=${rest#"${rest%%[![:space:]]*}"}
        if ((at > 0)) && [[ $rest == "$bare" && -n $word ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        rest=${bare#"$word"}
        ((at == COMP_CWORD)) && index=$((${#words[@]} - 1))
    done
    local space=true separator=$'\013' replies reply at
    compopt +o nospace 2>/dev/null && space=false
    COMPREPLY=()
    replies=$(
        _CLAP_IFS="$separator" _CLAP_COMPLETE_INDEX="$index" _CLAP_COMPLETE_COMP_TYPE="$COMP_TYPE" \
            _CLAP_COMPLETE_SPACE="$space" COMPLETE=bash leasehold -- "${words[@]}"
    ) || return
    # Not by word splitting, which would also expand a lock's name with `*` in it to names of files.
    IFS=$separator read -r -d '' -a COMPREPLY < <(printf '%s' "$replies")
    # Bash replaces only its own last piece, so remove the part before that piece from each reply.
    local whole=${words[index]}
    local before=${whole%"$2"}
    if [[ $space == false && "${COMPREPLY-}" =~ [=/:]$ ]]; then
        compopt -o nospace
    fi
    for at in "${!COMPREPLY[@]}"; do
        reply=${COMPREPLY[at]#"$before"}
        # Others choose the names of locks: what the shell would interpret is quoted.
        [[ $reply == *[!A-Za-z0-9_.,:/@+=-]* ]] && printf -v reply '%q' "$reply"
        COMPREPLY[at]=$reply
    done
}
if ((BASH_VERSINFO[0] > 4 || (BASH_VERSINFO[0] == 4 && BASH_VERSINFO[1] >= 4))); then
    complete -o nospace -o bashdefault -o nosort -F _clap_complete_leasehold leasehold
else
    complete -o nospace -o bashdefault -F _clap_complete_leasehold leasehold
fi
