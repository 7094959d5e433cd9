#!/bin/sh
# Build stage of the images with the model repository in /models. WEIGHTS=image keeps the weights and verifies MODEL_SHA256, if
# set; WEIGHTS=none removes them.
set -eu
file=openclip_vit_b32/1/model.onnx
case $WEIGHTS in
  none) find /models -type f -name '*.onnx*' -delete ;;
  image)
    [ -e "/models/$file" ] || { echo "model_repository/$file: no such file" >&2; exit 1; }
    sha256=$(sha256sum "/models/$file" | cut -d ' ' -f 1)
    if [ "${MODEL_SHA256:-$sha256}" != "$sha256" ]; then
      echo "model_repository/$file: sha256 must be $MODEL_SHA256, got $sha256" >&2
      exit 1
    fi
    # an image for one precision contains no other files
    if [ -n "${MODEL_PRECISION:-}" ]; then
      selected=model.$MODEL_PRECISION.onnx
      if [ "$MODEL_PRECISION" != fp32 ] && [ ! -e "/models/${file%/*}/$selected" ]; then
        echo "model_repository/${file%/*}/$selected: no such file for MODEL_PRECISION $MODEL_PRECISION" >&2
        exit 1
      fi
      find "/models/${file%/*}" -name 'model.*.onnx*' ! -name "$selected*" -delete
    fi
    ;;
  *) echo "WEIGHTS must be none or image, got '$WEIGHTS'" >&2; exit 2 ;;
esac
