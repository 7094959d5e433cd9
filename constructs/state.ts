import { GcsBackend, HttpBackend, LocalBackend, S3Backend, type TerraformStack } from "./cdktf.ts";

/** Where Terraform keeps what it knows. Credentials come from the environment of the process, never from here. */
export type StateBackend =
  | {
      readonly backend: "local";
      /**
       * A file, relative to the project.
       *
       * @default `terraform.<environment>.tfstate`
       */
      readonly path?: string;
    }
  | {
      readonly backend: "s3";
      readonly bucket: string;
      /** @default `clipstack/<environment>.tfstate` */
      readonly key?: string;
      readonly region: string;
      /** Of a storage that speaks S3 and is not AWS. */
      readonly endpoint?: string;
    }
  | {
      readonly backend: "gcs";
      readonly bucket: string;
      /** @default `clipstack/<environment>` */
      readonly prefix?: string;
    }
  | {
      readonly backend: "http";
      readonly address: string;
      /** Both or neither: without, two deployments at a time are not kept apart. */
      readonly lockAddress?: string;
      readonly unlockAddress?: string;
    };

/** Oldest Terraform with `terraform_data`; every OpenTofu has it. */
const minimumTerraform = ">= 1.4.0";

/**
 * Say where the state of `stack` is kept. A path is relative to `cdktf.out/stacks/<name>`, where Terraform runs: the
 * backend that a stack has without this writes the absolute path of the machine that synthesized it.
 */
export function keepState(stack: TerraformStack, state: StateBackend): void {
  const environment = stack.node.id;
  stack.addOverride("terraform.required_version", minimumTerraform);
  switch (state.backend) {
    case "local": {
      const path = state.path ?? `terraform.${environment}.tfstate`;
      new LocalBackend(stack, { path: `../../../${path}` });
      break;
    }
    case "s3": {
      const { bucket, key = `clipstack/${environment}.tfstate`, region, endpoint } = state;
      new S3Backend(stack, {
        bucket,
        key,
        region,
        encrypt: true,
        ...(endpoint !== undefined && {
          endpoints: { s3: endpoint },
          usePathStyle: true,
          skipCredentialsValidation: true,
          skipRegionValidation: true,
          skipRequestingAccountId: true,
          skipMetadataApiCheck: true,
          skipS3Checksum: true,
        }),
      });
      stack.addOverride("terraform.backend.s3.use_lockfile", true);
      break;
    }
    case "gcs": {
      const { bucket, prefix = `clipstack/${environment}` } = state;
      new GcsBackend(stack, { bucket, prefix });
      break;
    }
    case "http": {
      const { address, lockAddress, unlockAddress } = state;
      new HttpBackend(stack, { address, lockAddress, unlockAddress });
      break;
    }
  }
}
