# omprog gives its program an empty environment, so this brings the keys
. $folder/environment
exec $append $target
