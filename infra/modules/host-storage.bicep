// The storage account of the Functions host. It has the host's keys, the state of its timer, and
// the package that runs.

@description('Name of the account.')
param name string

@description('The Azure region.')
param location string

@description('Tags of the account.')
param tags object

@description('How the data is kept: Standard_LRS or Standard_ZRS.')
param sku string

@description('Whether only private endpoints lead to the account.')
param private bool = false

@description('The identity of the host.')
param principalId string

@description('Where the plan wants the site\'s content: share or container. Azure Files takes no identity from the platform, so with a share the account takes keys.')
@allowed([
  'share'
  'container'
])
param content string

var hasShare = content == 'share'

var shareName = 'content'
var containerName = 'packages'

// The host's documentation requires these roles if AzureWebJobsStorage uses an identity.
var roles = {
  'Storage Blob Data Owner': 'b7e6dc6d-f1e8-4753-8033-0f276bb0955b'
  'Storage Queue Data Contributor': '974c5e8b-45b9-4653-ba55-5f855dd0fb88'
  'Storage Table Data Contributor': '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3'
}

resource account 'Microsoft.Storage/storageAccounts@2025-06-01' = {
  name: name
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: {
    name: sku
  }
  properties: {
    accessTier: 'Hot'
    allowSharedKeyAccess: hasShare
    defaultToOAuthAuthentication: true
    allowBlobPublicAccess: false
    allowCrossTenantReplication: false
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    publicNetworkAccess: private ? 'Disabled' : 'Enabled'
  }
}

resource fileService 'Microsoft.Storage/storageAccounts/fileServices@2025-06-01' = if (hasShare) {
  parent: account
  name: 'default'
}

resource share 'Microsoft.Storage/storageAccounts/fileServices/shares@2025-06-01' = if (hasShare) {
  parent: fileService
  name: shareName
}

resource blobService 'Microsoft.Storage/storageAccounts/blobServices@2025-06-01' = {
  parent: account
  name: 'default'
}

resource container 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01' = if (!hasShare) {
  parent: blobService
  name: containerName
  properties: {
    publicAccess: 'None'
  }
}

resource accountRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for role in items(roles): {
    name: guid(account.id, principalId, role.value)
    scope: account
    properties: {
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role.value)
      principalId: principalId
      principalType: 'ServicePrincipal'
    }
  }
]

@description('Name of the account.')
output name string = account.name

@description('Name of the share, if there is one.')
output shareName string = shareName

@description('Address of the container, if there is one.')
output containerUrl string = '${account.properties.primaryEndpoints.blob}${containerName}'
