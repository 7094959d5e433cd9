import { once } from "node:events";
import { chooseForm } from "./choose-form.ts";
import { draftForm, type FormFacts, type FormName, formFolderName } from "./form-folder.ts";
import { onnxBytes, onnxChunks } from "./onnx-writer.ts";

/**
 * A process of its own that makes a form of a model and ends: what that takes of memory is gone with it, and the server's
 * event loop stays free. Its argument is a {@link FormRequest} as JSON; it prints a {@link FormAnswer} as one line of JSON,
 * followed by the bytes of the model where there is no folder to write to.
 */

export interface FormRequest extends FormName {
  readonly modelPath: string;
  /** Folder that the form's folder is made in. Without it, the form is printed. */
  readonly cache?: string;
  /** Make it anew where it is there already. */
  readonly replace?: boolean;
}

export type FormAnswer =
  | { readonly kind: "made" }
  | {
      readonly kind: "bytes";
      readonly bytes: number;
      readonly facts: Pick<FormFacts, "precision" | "parts" | "agreement">;
    }
  /** `unwritable`: it is the folder's fault. */
  | { readonly kind: "failed"; readonly message: string; readonly unwritable: boolean };

const request = JSON.parse(process.argv[2] ?? "{}") as FormRequest;
try {
  await (request.cache === undefined ? printForm(request) : makeForm(request, request.cache));
} catch (error) {
  const { message, code } = error as NodeJS.ErrnoException;
  const unwritable = request.cache !== undefined && /^E[A-Z]+$/.test(code ?? "");
  await answer({ kind: "failed", message, unwritable });
}

async function makeForm(
  { modelPath, source, precision, operators, replace = false }: FormRequest,
  cache: string,
): Promise<void> {
  const draft = await draftForm(cache, formFolderName({ source, precision, operators }));
  try {
    const { form, agreement } = await chooseForm(
      modelPath,
      { precision, operators },
      async (model) => {
        await draft.write(model);
        return draft.modelPath;
      },
    );
    await draft.publish({ source, precision, parts: [...form.parts], agreement }, replace);
  } finally {
    await draft.discard();
  }
  await answer({ kind: "made" });
}

async function printForm({ modelPath, precision, operators }: FormRequest): Promise<void> {
  const { form, agreement } = await chooseForm(
    modelPath,
    { precision, operators },
    async (model) => {
      const bytes = new Uint8Array(onnxBytes(model));
      let filled = 0;
      for (const chunk of onnxChunks(model)) {
        bytes.set(chunk, filled);
        filled += chunk.length;
      }
      return bytes;
    },
  );
  await answer({
    kind: "bytes",
    bytes: onnxBytes(form.model),
    facts: { precision, parts: [...form.parts], agreement },
  });
  // a chunk is only valid until the next one
  for (const chunk of onnxChunks(form.model)) await print(Uint8Array.from(chunk));
}

async function answer(value: FormAnswer): Promise<void> {
  await print(Buffer.from(`${JSON.stringify(value)}\n`));
}

async function print(bytes: Uint8Array): Promise<void> {
  if (!process.stdout.write(bytes)) await once(process.stdout, "drain");
}
