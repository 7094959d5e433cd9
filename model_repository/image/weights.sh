#!/bin/sh
# Build stage of the images with the model repository in /models. Keeps the towers in MODELS and their folders with the suffixes in the
# arguments. WEIGHTS=image keeps the weights and verifies that MODEL_SHA256, if set, lists their checksums; WEIGHTS=none removes them.
set -eu
fail() {
  echo "model_repository/$1" >&2
  exit 1
}

# the list of models as the embed server reads it: `a:image,b` is [{"name":"a","modalities":["image"]},"b"]
list=$(echo "$MODELS" | sed -E 's/ //g; s/[^,]+/"&"/g; s/"([^":]+):([a-z]+)"/{"name":"\1","modalities":["\2"]}/g; s/.*/[&]/')
towers=$(/models/image/towers "$MODELS" /models)
kept=
for tower in $towers; do
  for suffix in '' "$@"; do kept="$kept $tower$suffix"; done
done
for folder in /models/*; do
  case "$kept " in *" ${folder##*/} "*) ;; *) rm -r "$folder" ;; esac
done

echo "$list" > /models/models.json

case $WEIGHTS in
  none)
    find /models -type f -name '*.onnx*' -delete
    exit
    ;;
  image) ;;
  *) echo "WEIGHTS must be none or image, got '$WEIGHTS'" >&2; exit 2 ;;
esac
for tower in $towers; do
  folder=/models/$tower/1
  file=$tower/1/model.onnx
  [ -e "/models/$file" ] || fail "$file: no such file"
  sha256=$(sha256sum "/models/$file" | cut -d ' ' -f 1)
  case ",${MODEL_SHA256:-$sha256}," in
    *",$sha256,"*) ;;
    *) fail "$file: sha256 must be $MODEL_SHA256, got $sha256" ;;
  esac
  # the same file with TensorRT
  [ -e "/models/${tower}_trt/1/model.onnx" ] || {
    mkdir -p "/models/${tower}_trt/1"
    ln -sf "../../$file" "/models/${tower}_trt/1/model.onnx"
    for data in "$folder"/*.data "$folder"/*_data "$folder"/*_data_*; do
      [ ! -e "$data" ] || ln -sf "../../$tower/1/${data##*/}" "/models/${tower}_trt/1/"
    done
    ln -sf "../../$tower/1/model.trt-fp16.onnx" "/models/${tower}_trt/1/model.trt-fp16.onnx"
  }
  # an image for one precision contains no other files
  if [ -n "${MODEL_PRECISION:-}" ]; then
    precision=$MODEL_PRECISION
    # the optimisation is one of image towers
    case $tower:$precision in *_text:fp32-optimised) precision=fp32 ;; esac
    selected=model.$precision.onnx
    [ "$precision" = fp32 ] || [ -e "$folder/$selected" ] \
      || fail "$tower/1/$selected: no such file for MODEL_PRECISION $MODEL_PRECISION"
    find "$folder" -name 'model.*.onnx*' ! -name "$selected*" -delete
  fi
done
